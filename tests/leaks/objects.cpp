/* SHEAF_LEAKS=1 in C++: containers that grow, hierarchies of classes, static objects, exceptions. */
#include "leaks.h"

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace
{

struct Shape {
    virtual ~Shape() = default;
    long area = 0;
};

struct Named {
    virtual ~Named() = default;
    char name[200] = "";
};

/* Named lies within the object: a pointer to it is an interior one. */
struct Circle : Shape, Named {
    char rest[256 - sizeof(Shape) - sizeof(Named)];
};
static_assert(sizeof(Circle) == 256, "the size of a class");

std::vector<std::unique_ptr<Shape>> shapes;
Named *volatile by_base;

AWAY_CASE(lost_objects, "lost 1.8 KiB in 7 blocks")
{
    for (int i = 0; i < 7; i++)
        sink = new Circle;
}

AWAY_CASE(pointers_to_bases, "nothing lost")
{
    by_base = new Circle;
    for (int i = 0; i < 100; i++)
        shapes.push_back(std::make_unique<Circle>());
}

struct Holder { /* 64 bytes */
    std::vector<std::unique_ptr<Shape>> all;
    char rest[64 - sizeof(std::vector<int>)];
};

/* The vector itself is lost, and what it holds with it: its array of 64 pointers, and 64 circles. */
AWAY_CASE(a_lost_vector_and_its_elements, "lost 64 bytes in 1 block, 16.5 KiB in 65 blocks through it")
{
    auto *holder = new Holder;
    for (int i = 0; i < 64; i++)
        holder->all.push_back(std::make_unique<Circle>());
    sink = holder;
}

struct Node { /* 64 bytes */
    std::shared_ptr<Node> next;
    char rest[32];
};

void lose_cycle_of_shared()
{
    auto a = std::make_shared<Node>(), b = std::make_shared<Node>();
    a->next = b;
    b->next = a;
}

LEAK_CASE(a_cycle_of_shared_pointers, "lost 64 bytes in 1 block, 64 bytes in 1 block through it")
{
    static_assert(sizeof(Node) + 2 * sizeof(void *) == 64, "with the counts of make_shared");
    away(lose_cycle_of_shared);
}

std::map<std::string, std::list<std::string>> growing;
std::function<int()> callback;

AWAY_CASE(containers_in_static_data, "nothing lost")
{
    for (int i = 0; i < 1000; i++)
        for (int j = 0; j < 5; j++)
            growing["a key that is too long for the string itself " + std::to_string(i % 100)].push_back(
                "a value that is too long as well " + std::to_string(j));
    auto large = std::make_shared<std::vector<int>>(100000);
    callback = [large] { return (*large)[7]; };
}

AWAY_CASE(an_object_lost_by_an_exception, "lost 256 bytes in 1 block")
{
    try {
        sink = new Circle;
        throw std::runtime_error("a message that is too long for the string itself");
    } catch (const std::exception &) {
        sink = nullptr;
    }
}

std::string *volatile strings;

LEAK_CASE(an_array_of_objects, "nothing lost")
{
    away([] { strings = new std::string[42]; }); /* the number of objects lies before the first */
}

/* Destroyed before the report: its blocks are free by then. */
struct Late {
    std::vector<std::unique_ptr<Shape>> all;
    Late()
    {
        for (int i = 0; i < 10; i++)
            all.push_back(std::make_unique<Circle>());
    }
};

LEAK_CASE(static_and_thread_local_objects, "nothing lost")
{
    static Late late;
    static thread_local std::vector<int> numbers(1000);
    must(numbers.size() == 1000);
    std::thread([] {
        static thread_local std::vector<int> others(1000);
        must(others.size() == 1000);
    }).join();
}

} // namespace

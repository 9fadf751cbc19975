/* A small program that uses libsheaf: it fills a list whose nodes come from a cache, and empties it. */
#include <sheaf/kmem_cache.h>
#include <stdio.h>

struct node {
    struct node *next;
    int value;
};

int main(void)
{
    struct kmem_cache *nodes = kmem_cache_create("node", sizeof(struct node), NULL, 0);
    struct node *list = NULL;
    long sum = 0;
    if (!nodes) {
        perror("kmem_cache_create");
        return 1;
    }
    for (int i = 1; i <= 1000; i++) {
        struct node *node = kmem_cache_alloc(nodes, GFP_KERNEL);
        if (!node)
            return 1;
        node->value = i;
        node->next = list;
        list = node;
    }
    while (list) {
        struct node *next = list->next;
        sum += list->value;
        kmem_cache_free(nodes, list);
        list = next;
    }
    printf("%ld\n", sum);
    return kmem_cache_destroy(nodes) || sum != 500500;
}

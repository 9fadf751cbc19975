/*
 * A std::pmr::memory_resource over caches, for C++17 and later. Only this header and libsheaf are needed.
 *
 *     sheaf::memory_resource nodes("nodes");
 *     std::pmr::map<int, std::pmr::string> map(&nodes);
 *
 * The resource has a cache for each size that is requested, up to 4096 bytes: steps of 16 bytes up to 256, then eight
 * steps for each doubling. A cache is created at the first request of its size. Larger requests and larger alignments
 * are served by sheaf_aligned_alloc(). Memory of one resource lies apart from that of others and of malloc.
 */
#ifndef SHEAF_MEMORY_RESOURCE_HPP
#define SHEAF_MEMORY_RESOURCE_HPP

#include <sheaf/kmem_cache.h>
#include <sheaf/malloc.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <memory_resource>
#include <new>

namespace sheaf
{

class memory_resource final : public std::pmr::memory_resource
{
  public:
    static constexpr std::size_t largest = 4096; /* bytes of a request that a cache serves */

    /* Caches are named NAME-SIZE, and of the name the first 26 bytes are used. Allocates nothing. */
    explicit memory_resource(const char *name = "pmr") noexcept
    {
        std::snprintf(name_.data(), name_.size(), "%s", name);
    }

    memory_resource(const memory_resource &) = delete;
    memory_resource &operator=(const memory_resource &) = delete;

    /*
     * All memory must have been deallocated. Otherwise standard error says how many objects of which cache were not,
     * and these objects stay where they are.
     */
    ~memory_resource() override
    {
        for (std::atomic<kmem_cache *> &entry : caches_) {
            kmem_cache *cache = entry.load(std::memory_order_acquire);
            if (cache && cache != none())
                kmem_cache_destroy(cache);
        }
    }

    /* Returns memory that no allocation uses to the system. */
    void shrink() noexcept
    {
        for (std::atomic<kmem_cache *> &entry : caches_) {
            kmem_cache *cache = entry.load(std::memory_order_acquire);
            if (cache && cache != none())
                kmem_cache_shrink(cache);
        }
    }

  protected:
    void *do_allocate(std::size_t bytes, std::size_t align) override
    {
        kmem_cache *cache = fits(bytes, align) ? cache_of(number_of(bytes, align)) : none();
        void *object = cache != none() ? kmem_cache_alloc(cache, GFP_KERNEL)
                                       : sheaf_aligned_alloc(align < 16 ? 16 : align, bytes);
        return object ? object : throw std::bad_alloc();
    }

    void do_deallocate(void *object, std::size_t bytes, std::size_t align) override
    {
        kmem_cache *cache =
            fits(bytes, align) ? caches_[number_of(bytes, align)].load(std::memory_order_acquire) : none();
        if (cache != none())
            kmem_cache_free(cache, object);
        else
            sheaf_free(object);
    }

    /* What one resource allocated, only the same one can deallocate. */
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }

  private:
    static constexpr unsigned fine = 8; /* sizes up to 128, in steps of 16 */
    static constexpr unsigned count = fine + 5 * 8;

    static constexpr bool fits(std::size_t bytes, std::size_t align) { return bytes <= largest && align <= largest; }

    /*
     * The size is rounded up to a multiple of the alignment. Then the size of its cache is such a multiple too: sizes
     * are multiples of their step, and a multiple of an alignment that is larger than the step is one of the sizes.
     */
    static constexpr unsigned number_of(std::size_t bytes, std::size_t align)
    {
        std::size_t last = ((bytes + !bytes + align - 1) & ~(align - 1)) - 1;
        if (last < 16 * fine)
            return static_cast<unsigned>(last / 16);
        unsigned power = 63 - static_cast<unsigned>(__builtin_clzll(last));
        return fine + (power - 7) * 8 + static_cast<unsigned>(last >> (power - 3)) - 8;
    }

    static constexpr unsigned size_of(unsigned number)
    {
        return number < fine ? (number + 1) * 16 : (9 + (number - fine) % 8) << (4 + (number - fine) / 8);
    }

    /* In place of a cache that could not be created: sheaf_aligned_alloc() then serves requests of its size. */
    static kmem_cache *none()
    {
        static char mark;
        return reinterpret_cast<kmem_cache *>(&mark);
    }

    kmem_cache *cache_of(unsigned number)
    {
        kmem_cache *cache = caches_[number].load(std::memory_order_acquire);
        return cache ? cache : create(number);
    }

    /* Threads that create the same cache at once agree on the first one. */
    kmem_cache *create(unsigned number)
    {
        unsigned size = size_of(number);
        std::array<char, 48> name;
        kmem_cache_args args = {size & -size, 0, nullptr};
        std::snprintf(name.data(), name.size(), "%s-%u", name_.data(), size);
        kmem_cache *cache = kmem_cache_create(name.data(), size, &args, 0);
        kmem_cache *mine = cache ? cache : none(), *before = nullptr;
        if (caches_[number].compare_exchange_strong(before, mine, std::memory_order_acq_rel))
            return mine;
        kmem_cache_destroy(cache);
        return before;
    }

    std::array<std::atomic<kmem_cache *>, count> caches_{};
    std::array<char, 27> name_{};
};

} // namespace sheaf

#endif

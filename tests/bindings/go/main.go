// A Go program whose C allocations are Sheaf's. Go's own heap stays that of its runtime.
package main

/*
// pkg-config would add a flag that Go does not allow, and that is for programs in which only libc allocates.
#cgo LDFLAGS: -lsheaf-malloc
#define _GNU_SOURCE
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What malloc_info() prints, to be freed by the caller.
static char *info(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    malloc_info(0, stream);
    fclose(stream);
    return text;
}
*/
import "C"

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"unsafe"
)

const (
	workers = 8
	rounds  = 5000
)

// block is memory of C's malloc that holds its own size and mark at both ends.
type block struct {
	bytes []byte
	mark  byte
}

func newBlock(size int, mark byte) block {
	memory := C.malloc(C.size_t(size))
	bytes := unsafe.Slice((*byte)(memory), size)
	bytes[0], bytes[size-1] = mark, mark
	return block{bytes, mark}
}

func (b block) free() {
	if b.bytes[0] != b.mark || b.bytes[len(b.bytes)-1] != b.mark {
		panic("a block was overwritten")
	}
	C.free(unsafe.Pointer(&b.bytes[0]))
}

// Goroutines allocate blocks, and others, on other threads, free them.
func exchange() {
	blocks := make(chan block, 1000)
	var makers, takers sync.WaitGroup
	for worker := 0; worker < workers; worker++ {
		worker := worker
		makers.Add(1)
		go func() {
			defer makers.Done()
			for round := 0; round < rounds; round++ {
				blocks <- newBlock((round*37+worker)%3000+1, byte(round))
			}
		}()
		takers.Add(1)
		go func() {
			defer takers.Done()
			for b := range blocks {
				b.free()
			}
		}()
	}
	makers.Wait()
	close(blocks)
	takers.Wait()
}

func main() {
	text := C.info()
	if !strings.Contains(C.GoString(text), `allocator="sheaf"`) {
		fmt.Fprintln(os.Stderr, "C's malloc is not Sheaf's")
		os.Exit(1)
	}
	C.free(unsafe.Pointer(text))
	before := C.mallinfo2().uordblks
	exchange()
	copied := C.CString(strings.Repeat("x", 100000))
	if C.mallinfo2().uordblks < before+100000 || C.strlen(copied) != 100000 {
		fmt.Fprintln(os.Stderr, "a string that was copied for C is not in Sheaf's memory")
		os.Exit(1)
	}
	C.free(unsafe.Pointer(copied))
	fmt.Println(workers*rounds, "blocks")
}

// go_map: look-ups of keys drawn from one map of Go's heap.
//
//	go_map ROOM KEYS LOOKUPS
//
// The map is made with room for ROOM keys, whose values have 120 bytes, so that 6,500,000 make a heap of 1 GiB; KEYS of them are put in.
// It prints a sum, which is the same whatever pages the heap lies on, and the time of a look-up.
package main

// With cgo the runtime maps its heap by libc's mmap (runtime/cgo_mmap.go), and a library that is loaded before libc's can advise it.

import "C"

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

type fare [120]byte

// Odd, so that no two keys are alike: 2^64 over the golden ratio (Knuth, The Art of Computer Programming 3, 6.4).
const spread = 0x9E3779B97F4A7C15

func number(word string) uint64 {
	value, err := strconv.ParseUint(word, 10, 64)
	if err != nil || value == 0 {
		os.Exit(2)
	}
	return value
}

func main() {
	if len(os.Args) != 4 {
		os.Exit(2)
	}
	room, keys, lookups := number(os.Args[1]), number(os.Args[2]), number(os.Args[3])
	fares := make(map[uint64]fare, room)
	for i := uint64(0); i < keys; i++ {
		fares[i*spread] = fare{byte(i)}
	}
	state, sum := uint64(17), uint64(0)
	begin := time.Now()
	for i := uint64(0); i < lookups; i++ {
		state = state*6364136223846793005 + 1442695040888963407 // Knuth's MMIX
		drawn := (state>>33 ^ sum&1) % keys
		sum += uint64(fares[drawn*spread][0])
	}
	spent := time.Since(begin)
	fmt.Printf("sum: %d\nns a look-up: %.3f\n", sum, float64(spent.Nanoseconds())/float64(lookups))
}

// rules_engine: transactions that each look a few rules up in one large slice of bytes.
//
//	rules_engine BYTES TRANSACTIONS NEIGHBOUR
//
// The rules lie in make([]byte, n), as everybody writes it; with RULES=large in the environment in a mapping of their own that is advised
// with MADV_HUGEPAGE, and with RULES=pool in one from the pool of 2 MiB pages. With NEIGHBOUR 1 another goroutine streams through memory
// meanwhile. It prints a sum, which is the same in all cases, and the time of a transaction, of the look-ups alone.
package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

const (
	ruleBytes     = 64
	rulesEach     = 4
	madvHuge      = 14       // MADV_HUGEPAGE, asm-generic/mman-common.h
	mapHuge2M     = 21 << 26 // MAP_HUGE_2MB, asm-generic/hugetlb_encode.h
	mapHugetlb    = 0x40000  // MAP_HUGETLB, asm-generic/mman.h
	streamedBytes = 64 << 20
)

func number(word string) uint64 {
	value, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		os.Exit(2)
	}
	return value
}

func rules(bytes uint64) []byte {
	how := os.Getenv("RULES")
	if how != "large" && how != "pool" {
		return make([]byte, bytes)
	}
	flags := syscall.MAP_PRIVATE | syscall.MAP_ANON
	if how == "pool" {
		flags |= mapHugetlb | mapHuge2M
	}
	mapped, err := syscall.Mmap(-1, 0, int(bytes), syscall.PROT_READ|syscall.PROT_WRITE, flags)
	if err == nil && how == "large" {
		err = syscall.Madvise(mapped, madvHuge)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	return mapped
}

func stream(streamed []byte) {
	for pass := byte(1); ; pass++ {
		for i := 0; i < len(streamed); i += ruleBytes {
			streamed[i] += pass
		}
	}
}

func main() {
	if len(os.Args) != 4 {
		os.Exit(2)
	}
	bytes, transactions := number(os.Args[1]), number(os.Args[2])
	table := rules(bytes)
	for i := uint64(0); i < bytes; i += ruleBytes {
		table[i] = byte(i>>6) & 63
	}
	if os.Args[3] == "1" {
		go stream(make([]byte, streamedBytes))
	}
	count, state, sum := bytes/ruleBytes, uint64(17), uint64(0)
	begin := time.Now()
	for i := uint64(0); i < transactions; i++ {
		for rule := 0; rule < rulesEach; rule++ {
			state = state*6364136223846793005 + 1442695040888963407 // Knuth's MMIX
			next := (state>>33 ^ sum&1) % count
			sum += uint64(table[next*ruleBytes])
		}
	}
	spent := time.Since(begin)
	fmt.Printf("sum: %d\nns a transaction: %.3f\n", sum, float64(spent.Nanoseconds())/float64(transactions))
}

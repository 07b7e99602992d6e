// big_array: one large array in Go, as everybody allocates it or on huge pages; random reads of single bytes, timed.
// The contract is that of big_array.c.
package main

import (
	"encoding/json"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

const (
	batches  = 9
	accesses = 1 << 20
)

// [recipe]
const hugePage = 2 << 20
const madvHugepage = 14 // package syscall has no name for it

// The array lies outside the garbage collector's heap: it is zeroed, never moved and never freed. Keep no Go pointers in it.
func hugeArray(bytes int) []byte {
	room, err := syscall.Mmap(-1, 0, bytes+hugePage, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		panic(err)
	}
	start := int(-uintptr(unsafe.Pointer(&room[0])) % hugePage)
	array := room[start : start+bytes]
	if err := syscall.Madvise(array, madvHugepage); err != nil {
		os.Exit(3)
	}
	return array
}

// [end]

// [pool]
const mapHugetlb2MB = 0x40000 | 21<<26 // package syscall has no name for them

func poolArray(bytes int) []byte {
	array, err := syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|mapHugetlb2MB)
	if err != nil {
		os.Exit(3)
	}
	return array
}

// [end]

func main() {
	ways := map[string]func(int) []byte{"plain": func(n int) []byte { return make([]byte, n) }, "huge": hugeArray, "pool": poolArray}
	if len(os.Args) != 3 || ways[os.Args[1]] == nil {
		os.Exit(2)
	}
	bytes, err := strconv.Atoi(os.Args[2])
	if err != nil || bytes < 1 {
		os.Exit(2)
	}
	array := ways[os.Args[1]](bytes)
	for i := range array {
		array[i] = 1
	}
	x, sum, batchNs := uint64(88172645463325252), uint64(0), []int64{}
	for batch := 0; batch < batches; batch++ {
		begin := time.Now()
		for i := 0; i < accesses; i++ {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			sum += uint64(array[((x>>32)*(uint64(bytes)>>12)>>32)<<12|(x&4095)])
		}
		batchNs = append(batchNs, time.Since(begin).Nanoseconds())
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"language": "go", "variant": os.Args[1], "array_bytes": bytes, "address": uintptr(unsafe.Pointer(&array[0])),
		"accesses": accesses, "sum": sum, "batch_ns": batchNs,
	})
	os.Stdin.Read(make([]byte, 1))
	runtime.KeepAlive(array)
}

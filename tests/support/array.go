package main

import (
	"fmt"
	"time"
)

func main() {
	array := make([]int, 8<<20)
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
		for i := range array {
			array[i]++
		}
	}
	fmt.Println(array[0] == array[len(array)-1])
}

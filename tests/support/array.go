package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

func main() {
	array := make([]int, 8<<20)
	seconds, _ := strconv.Atoi(os.Args[1])
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); {
		for i := range array {
			array[i]++
		}
	}
	fmt.Println(array[0] == array[len(array)-1])
}

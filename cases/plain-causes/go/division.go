// A mask, or After a remainder.
package main

import (
	"fmt"
	"os"
	"strconv"
)

//go:noinline
func work(n int, by uint64) uint64 {
	x := uint64(1)
	for i := 0; i < n; i++ {
		x = x*6364136223846793005 + 1442695040888963407
		if After {
			x ^= (x >> 3) % by
		} else {
			x ^= (x >> 3) & by
		}
	}
	return x
}

func main() {
	n, _ := strconv.Atoi(os.Args[1])
	fmt.Println(work(n, uint64(n)|1))
}

// Numbers in order, or After in disorder, and a branch on each.
package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
)

var numbers [40000]int

//go:noinline
func work() int {
	sum := 0
	for _, x := range numbers {
		if x >= 500 {
			sum += x ^ sum
		} else {
			sum -= 3
		}
	}
	return sum
}

func main() {
	n, _ := strconv.Atoi(os.Args[1])
	random := uint32(1)
	for i := range numbers {
		random = random*1664525 + 1013904223
		numbers[i] = int(random>>12) % 1000
	}
	if !After {
		sort.Ints(numbers[:])
	}
	sum := 0
	for i := 0; i < n; i++ {
		sum += work()
	}
	fmt.Println(sum)
}

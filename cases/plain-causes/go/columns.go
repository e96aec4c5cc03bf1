// Sums along the rows of a matrix, or After along its columns.
package main

import (
	"fmt"
	"os"
	"strconv"
)

//go:noinline
func work(numbers []int, step int) int {
	sum := 0
	for first := 0; first < step; first++ {
		for i := first; i < len(numbers); i += step {
			sum += numbers[i]
		}
	}
	return sum
}

func main() {
	n, _ := strconv.Atoi(os.Args[1])
	numbers := make([]int, 1<<20)
	for i := range numbers {
		numbers[i] = i
	}
	step := 1
	if After {
		step = 512
	}
	sum := 0
	for i := 0; i < n; i++ {
		sum += work(numbers, step)
	}
	fmt.Println(sum)
}

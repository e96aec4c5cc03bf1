// One node for all turns, or After a new one for each.
package main

import (
	"fmt"
	"os"
	"strconv"
)

type node struct{ a, b, c int }

var last *node

func main() {
	n, _ := strconv.Atoi(os.Args[1])
	sum := 0
	var kept node
	for i := 0; i < n; i++ {
		if After {
			last = &node{a: i, b: i * 2, c: 3}
		} else {
			kept = node{a: i, b: i * 2, c: 3}
			last = &kept
		}
		sum += last.b
	}
	fmt.Println(sum)
}

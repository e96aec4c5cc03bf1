// Values of three types behind an interface, in order, or After in disorder.
package main

import (
	"fmt"
	"os"
	"strconv"
)

type op interface{ do(x int) int }
type add struct{ by int }
type mul struct{ by int }
type xor struct{ by int }

func (o add) do(x int) int { return x + o.by }
func (o mul) do(x int) int { return x * o.by }
func (o xor) do(x int) int { return x ^ o.by }

//go:noinline
func work(ops []op, x int) int {
	for _, o := range ops {
		x = o.do(x)
	}
	return x
}

func main() {
	n, _ := strconv.Atoi(os.Args[1])
	random := uint32(1)
	ops := make([]op, 20000)
	for i := range ops {
		random = random*1664525 + 1013904223
		kind := i * 3 / len(ops)
		if After {
			kind = int(random>>16) % 3
		}
		ops[i] = [...]op{add{3}, mul{5}, xor{9}}[kind]
	}
	x := 1
	for i := 0; i < n; i++ {
		x = work(ops, x)
	}
	fmt.Println(x)
}

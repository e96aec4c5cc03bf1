// Goroutines that hand numbers to each other by channels, all on one thread.
package main

import (
	"fmt"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
)

//go:noinline
func add(a, b int) int { return a + b }

//go:noinline
func worker(in, out chan int) {
	total := 0
	for n := range in {
		total = add(total, n)
	}
	out <- total
}

//go:noinline
func window() int {
	in, out := make(chan int), make(chan int)
	for i := 0; i < 4; i++ {
		go worker(in, out)
	}
	for i := 0; i < 10; i++ {
		in <- i
	}
	close(in)
	total := 0
	for i := 0; i < 4; i++ {
		total += <-out
	}
	return total
}

func main() {
	// The runtime interrupts what runs for 10 ms; stepped, its handler alone takes longer.
	signal.Ignore(syscall.SIGURG)
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
	fmt.Println(window())
	fmt.Println(window())
}

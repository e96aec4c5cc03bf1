// A sum, or After one that a mutex guards, with nobody else.
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
)

func main() {
	n, _ := strconv.Atoi(os.Args[1])
	sum := 0
	var mutex sync.Mutex
	for i := 0; i < n; i++ {
		if After {
			mutex.Lock()
		}
		sum += i ^ (sum >> 3)
		if After {
			mutex.Unlock()
		}
	}
	fmt.Println(sum)
}

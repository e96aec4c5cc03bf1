// Allocates with the collector on, and serves itself over HTTP.
package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sort"
	"strings"
	"sync"
)

type node struct {
	left, right *node
	key         int
}

func grow(depth, key int) *node {
	if depth == 0 {
		return &node{key: key}
	}
	return &node{grow(depth-1, 2*key), grow(depth-1, 2*key+1), key}
}

func (n *node) sum() int {
	if n == nil {
		return 0
	}
	return n.key%7 + n.left.sum() + n.right.sum()
}

func main() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		words := strings.Fields(strings.Repeat("the quick brown fox ", 200))
		sort.Strings(words)
		fmt.Fprint(w, len(strings.Join(words, ",")))
	}))
	defer server.Close()
	var wait sync.WaitGroup
	sums := make([]int, 8)
	for i := range sums {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for round := 0; round < 20; round++ {
				sums[i] += grow(12, 1).sum()
				answer, err := http.Get(server.URL)
				if err != nil {
					panic(err)
				}
				text, _ := io.ReadAll(answer.Body)
				answer.Body.Close()
				sums[i] += len(text)
			}
		}()
	}
	wait.Wait()
	fmt.Println(sums)
}

// Squeeze compresses made-up text again and again, or as often as its argument says: a Go program for
// the speed of tracing.
package main

import (
	"bytes"
	"compress/flate"
	"fmt"
	"os"
	"strconv"
)

func main() {
	var text bytes.Buffer
	for i := 0; i < 20000; i++ {
		fmt.Fprintf(&text, "line %d of %x, ", i%977, i*i)
	}
	rounds := 20
	if len(os.Args) > 1 {
		rounds, _ = strconv.Atoi(os.Args[1])
	}
	total := 0
	for i := 0; i < rounds; i++ {
		total += squeeze(text.Bytes())
	}
	fmt.Println(total)
}

//go:noinline
func squeeze(text []byte) int {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, 6)
	if err != nil {
		panic(err)
	}
	w.Write(text)
	w.Close()
	return out.Len()
}

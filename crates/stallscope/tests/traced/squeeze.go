// Squeeze compresses made-up text again and again: a Go program for the speed of tracing.
package main

import (
	"bytes"
	"compress/flate"
	"fmt"
)

func main() {
	var text bytes.Buffer
	for i := 0; i < 20000; i++ {
		fmt.Fprintf(&text, "line %d of %x, ", i%977, i*i)
	}
	total := 0
	for i := 0; i < 20; i++ {
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

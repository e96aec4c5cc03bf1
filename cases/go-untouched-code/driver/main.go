// The program of this case: compresses one small file again and again with go-brrr.
//
//	layoutbench FILE OPERATIONS
//
// Prints the compressed size and, on standard error, the time per operation.
package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	brrr "github.com/molecule-man/go-brrr"
	"github.com/molecule-man/go-brrr/internal/encoder"
)

// compress is one operation: what a window is laid around.
//
//go:noinline
func compress(w *brrr.Writer, out *bytes.Buffer, data []byte) error {
	out.Reset()
	w.Reset(out)
	if _, err := w.Write(data); err != nil {
		return err
	}
	return w.Close()
}

func run() error {
	if len(os.Args) < 3 {
		return fmt.Errorf("usage: layoutbench FILE OPERATIONS")
	}
	data, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	operations, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return err
	}
	// Never true; it keeps the linker from dropping what nobody calls.
	if operations < 0 {
		for i, pad := range encoder.LayoutPads {
			fmt.Println(pad(i))
		}
	}
	var out bytes.Buffer
	w, err := brrr.NewWriter(&out, 2)
	if err != nil {
		return err
	}
	start := time.Now()
	for range operations {
		if err := compress(w, &out, data); err != nil {
			return err
		}
	}
	if operations > 0 {
		fmt.Fprintf(os.Stderr, "%d ns/op\n", time.Since(start).Nanoseconds()/int64(operations))
	}
	fmt.Println(out.Len())
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "layoutbench:", err)
		os.Exit(1)
	}
}

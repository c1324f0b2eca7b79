// Command configdoc writes docs/configuration.md from the fields of package config. It runs in that package's directory.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := write("."); err != nil {
		fmt.Fprintln(os.Stderr, "configdoc:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	if len(os.Args) != 2 {
		return fmt.Errorf("want the page's path as the only argument, got %d arguments", len(os.Args)-1)
	}
	all, err := keys(dir)
	if err != nil {
		return err
	}
	return os.WriteFile(os.Args[1], []byte(render(all)), 0o644)
}

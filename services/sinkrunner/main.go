// Command sink-runner runs delivery attempts. It rests on TiKV.
package main

import (
	"os"

	"ankusa.dev/services/internal/boot"
	"ankusa.dev/services/internal/boot/runnerboot"
	"ankusa.dev/services/internal/boot/tikvboot"
	"ankusa.dev/services/internal/config"
)

func main() { os.Exit(boot.Main(config.RoleSinkRunner, os.Args[1:], runnerboot.Build(tikvboot.Open))) }

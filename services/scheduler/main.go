// Command scheduler stands for leadership and, leading, decides which delivery runs when. It rests on TiKV.
package main

import (
	"os"

	"ankusa.dev/services/internal/boot"
	"ankusa.dev/services/internal/boot/schedulerboot"
	"ankusa.dev/services/internal/boot/tikvboot"
	"ankusa.dev/services/internal/config"
)

func main() {
	os.Exit(boot.Main(config.RoleScheduler, os.Args[1:], schedulerboot.Build(tikvboot.Open)))
}

// Command ingest takes hooks over HTTP and gRPC and commits them. It rests on TiKV.
package main

import (
	"os"

	"ankusa.dev/services/internal/boot"
	"ankusa.dev/services/internal/boot/ingestboot"
	"ankusa.dev/services/internal/boot/tikvboot"
	"ankusa.dev/services/internal/config"
)

func main() { os.Exit(boot.Main(config.RoleIngest, os.Args[1:], ingestboot.Build(tikvboot.Open))) }

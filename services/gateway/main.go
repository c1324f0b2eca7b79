// Command gateway serves the operator's REST API. It asks the schedulers for everything and reaches no store.
package main

import (
	"os"

	"ankusa.dev/services/internal/boot"
	"ankusa.dev/services/internal/boot/gatewayboot"
	"ankusa.dev/services/internal/config"
)

func main() { os.Exit(boot.Main(config.RoleGateway, os.Args[1:], gatewayboot.Build)) }

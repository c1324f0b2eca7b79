// Command sink-runner runs delivery attempts. It rests on TiKV.
package main

import (
	"context"
	"os"

	"go.uber.org/zap"

	"ankusa.dev/services/internal/boot"
	"ankusa.dev/services/internal/boot/runnerboot"
	"ankusa.dev/services/internal/config"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/tikv"
)

func main() { os.Exit(boot.Main(config.RoleSinkRunner, os.Args[1:], runnerboot.Build(openStore))) }

func openStore(ctx context.Context, c config.Config, log *zap.Logger) (kv.Store, error) {
	o := tikv.Default()
	o.PD = c.Store.PD
	o.TLS = tikv.TLS{CA: c.Store.TLS.CA, Cert: c.Store.TLS.Cert, Key: c.Store.TLS.Key}
	o.GC.Enabled = false // the scheduler alone collects
	return tikv.Open(ctx, o, log)
}

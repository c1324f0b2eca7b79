package local

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// engineLogger passes the engine's messages on. They carry no values of the store, keys at most in messages on
// corruption.
type engineLogger struct{ log *zap.Logger }

func (l engineLogger) Infof(format string, args ...any) { l.write(zapcore.DebugLevel, format, args) }

func (l engineLogger) Errorf(format string, args ...any) { l.write(zapcore.ErrorLevel, format, args) }

// Fatalf ends the process: the engine's state is not to be trusted any more.
func (l engineLogger) Fatalf(format string, args ...any) { l.write(zapcore.FatalLevel, format, args) }

func (l engineLogger) write(level zapcore.Level, format string, args []any) {
	if entry := l.log.Check(level, "storage engine"); entry != nil {
		entry.Write(zap.String("detail", fmt.Sprintf(format, args...)))
	}
}

func engineEvents(log *zap.Logger) *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) { log.Error("storage engine failed in the background", zap.Error(err)) },
		DiskSlow: func(i pebble.DiskSlowInfo) {
			log.Warn("disk is slow", zap.String("path", i.Path), zap.Duration("duration", i.Duration))
		},
		WriteStallBegin: func(i pebble.WriteStallBeginInfo) {
			log.Warn("writes stall", zap.String("reason", i.Reason))
		},
		WriteStallEnd: func() { log.Info("writes go on") },
	}
}

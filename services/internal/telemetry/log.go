// Package telemetry makes what a process shows of itself: its log, its metrics, and the answers to /health, /ready and
// /metrics.
package telemetry

import (
	"fmt"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// levels of the configuration.
var levels = map[string]zapcore.Level{
	"debug": zap.DebugLevel, "info": zap.InfoLevel, "warning": zap.WarnLevel, "error": zap.ErrorLevel,
}

// NewLogger writes JSON lines of the level (debug, info, warning or error) and above to w, which must be safe for
// concurrent use. Times are RFC 3339 in UTC with milliseconds; durations are in seconds.
func NewLogger(level string, w zapcore.WriteSyncer) (*zap.Logger, error) {
	least, ok := levels[level]
	if !ok {
		return nil, fmt.Errorf("log level %q is none of debug, info, warning, error", level)
	}
	encoding := zap.NewProductionEncoderConfig()
	encoding.TimeKey, encoding.MessageKey = "time", "message"
	encoding.EncodeTime = encodeTime
	core := zapcore.NewCore(zapcore.NewJSONEncoder(encoding), w, least)
	return zap.New(core), nil // which complains of w on standard error
}

// timeLayout is RFC 3339 with milliseconds.
const timeLayout = "2006-01-02T15:04:05.000Z07:00"

// encodeTime spares the text a copy where the encoder can.
func encodeTime(t time.Time, e zapcore.PrimitiveArrayEncoder) {
	if direct, ok := e.(interface {
		AppendTimeLayout(t time.Time, layout string)
	}); ok {
		direct.AppendTimeLayout(t.UTC(), timeLayout)
		return
	}
	e.AppendString(t.UTC().Format(timeLayout))
}

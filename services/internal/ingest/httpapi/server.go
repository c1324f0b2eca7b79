package httpapi

import (
	"net/http"

	"go.uber.org/zap"
)

// maxHeaderBytes bounds the request line and headers; more is answered 431.
const maxHeaderBytes = 64 << 10

// NewServer makes the server that the handler must run in: with deadlines for headers and for the first of a body, from
// where the handler itself goes on, for answers and for idle connections. What strangers do wrong below HTTP, which the
// server answers by itself with 400, is logged at debug.
func NewServer(c Config, h http.Handler, log *zap.Logger) (*http.Server, error) {
	errors, err := zap.NewStdLogAt(log.Named("http"), zap.DebugLevel)
	if err != nil {
		return nil, err
	}
	return &http.Server{
		Handler: h, ErrorLog: errors, MaxHeaderBytes: maxHeaderBytes,
		ReadHeaderTimeout: c.HeaderTimeout, ReadTimeout: c.HeaderTimeout + firstBody,
		WriteTimeout: c.BodyTimeout + 2*firstBody, IdleTimeout: c.IdleTimeout,
	}, nil
}

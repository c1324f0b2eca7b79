// Package lean is a load generator and a receiver that take as little of the machine as they can, since they share it
// with what they measure: raw connections that are kept, requests that are built once, and no more parsing than needed.
package lean

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// errProtocol: the peer does not speak the small part of HTTP/1.1 that is understood here.
var errProtocol = errors.New("not the HTTP/1.1 that was expected")

// message is what is known of one request or response after its headers.
type message struct {
	status int // of a response
	length int
	id     [36]byte // the hook's, where a request names one
	close  bool
}

var (
	contentLength = []byte("content-length:")
	hookID        = []byte("x-ankusa-id:")
	connection    = []byte("connection:")
)

// readHead reads up to the blank line. io.EOF means that the peer closed between messages.
func readHead(r *bufio.Reader) (message, error) {
	var m message
	line, err := r.ReadSlice('\n')
	if err != nil {
		return m, err
	}
	if bytes.HasPrefix(line, []byte("HTTP/1.1 ")) && len(line) > 12 {
		if m.status, err = strconv.Atoi(string(line[9:12])); err != nil {
			return m, fmt.Errorf("%w: %q", errProtocol, line)
		}
	}
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return m, errors.Join(io.ErrUnexpectedEOF, err)
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			return m, nil
		}
		if err := m.header(line); err != nil {
			return m, err
		}
	}
}

func (m *message) header(line []byte) error {
	switch {
	case hasName(line, contentLength):
		n, err := strconv.Atoi(string(value(line, contentLength)))
		if err != nil {
			return fmt.Errorf("%w: %q", errProtocol, line)
		}
		m.length = n
	case hasName(line, hookID):
		copy(m.id[:], value(line, hookID))
	case hasName(line, connection):
		m.close = bytes.EqualFold(value(line, connection), []byte("close"))
	}
	return nil
}

func hasName(line, name []byte) bool {
	return len(line) >= len(name) && line[0]|0x20 == name[0] && bytes.EqualFold(line[:len(name)], name)
}

func value(line, name []byte) []byte { return bytes.TrimSpace(line[len(name):]) }

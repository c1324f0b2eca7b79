package tikvmock

import (
	"context"

	"github.com/tikv/client-go/v2/tikvrpc"
)

// Request is one request to TiKV, as far as a Hook cares.
type Request struct {
	// Kind is the command's name: "Prewrite", "Commit", "Get", "Scan", "CheckTxnStatus" and so on.
	Kind string
	// StartTS is the transaction's start timestamp; of a read, its snapshot's.
	StartTS uint64
}

// Hook is called in place of every request to TiKV, from several goroutines at once. It calls apply once to let the
// request take effect, or not at all; before and after that it may wait as long as it likes. If it returns false the
// answer is lost: the client learns nothing. ctx ends with the client's connection.
type Hook func(ctx context.Context, r Request, apply func()) (answer bool)

func describe(req *tikvrpc.Request) Request {
	return Request{Kind: req.Type.String(), StartTS: req.GetStartTS()}
}

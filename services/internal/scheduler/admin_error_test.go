package scheduler

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "ankusa.dev/proto/gen/ankusa/admin/v1"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

func TestNoAdminErrorAsksForARetryThatCannotSucceed(t *testing.T) {
	s := &Scheduler{log: zap.NewNop()}
	for reason, want := range map[string]struct {
		cause error
		code  codes.Code
	}{
		"source_exists":     {store.ErrSourceExists, codes.AlreadyExists},
		"source_not_found":  {store.ErrSourceNotFound, codes.NotFound},
		"too_many_sources":  {store.ErrTooManySources, codes.FailedPrecondition},
		"invalid_filter":    {store.ErrBadCursor, codes.InvalidArgument},
		"store_unavailable": {io.ErrUnexpectedEOF, codes.Unavailable},
	} {
		err := s.adminError("a call", fmt.Errorf("of acme: %w", want.cause))
		got, _, ok := wire.Reason(err)
		require.True(t, ok)
		require.Equal(t, reason, got)
		require.Equal(t, want.code, status.Code(err), reason)
	}
}

func TestACursorThatNoListingMadeIsRefused(t *testing.T) {
	_, err := deadFilter(&adminv1.ListDeadLettersRequest{Cursor: strings.Repeat("A", maxCursor+1)})
	requireRefusal(t, err, codes.InvalidArgument, "invalid_filter", "cursor")
}

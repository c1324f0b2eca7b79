package wire_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"ankusa.dev/gateway/internal/wire"
	adminv1 "ankusa.dev/proto/gen/ankusa/admin/v1"
	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
)

// FuzzASourceReadsBackAsItWasWritten also holds that any input is either taken or refused with a Fault.
func FuzzASourceReadsBackAsItWasWritten(f *testing.F) {
	f.Add([]byte(`{"name":"a","verify":{"type":"hmac","secret":"x"},"forward_headers":[],"trust_url_tenant":true}`))
	f.Add([]byte(`{"sinks":[{"headers":{"":"","b":"\u2028<&>"},"secret":[],"ordering_key":{},"timeout_ms":0}],"retry":{"max_elapsed_ms":18446744073709551615}}`))
	f.Add([]byte(`{"sinks":[{"headers":{"a":"1","a":"2"}}]}`))
	f.Add([]byte(`{"spread":1e2,"name":null}`))
	f.Add([]byte(`[{`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var first, second adminv1.Source
		if err := wire.Unmarshal(data, &first); err != nil {
			var fault *wire.Fault
			require.True(t, errors.As(err, &fault), "%v", err)
			return
		}
		written, err := wire.Marshal(&first)
		require.NoError(t, err)
		require.NoError(t, wire.Unmarshal(written, &second), "%s", written)
		require.True(t, proto.Equal(&first, &second), "%s", written)
	})
}

func TestAMessageWithAKindThatTheAPIDoesNotUseIsRefused(t *testing.T) {
	_, err := wire.Marshal(&dispatchv1.WriterHello{WriterId: []byte{1}})
	require.ErrorContains(t, err, "ankusa.dispatch.v1.WriterHello.writer_id: no JSON form for a bytes")
}

func TestAFaultNeverRepeatsAValue(t *testing.T) {
	for _, body := range []string{
		`{"verify":{"secret":[{"k":"hunter2"}]}}`,
		`{"verify":"hunter2"}`,
		`{"max_headers":"hunter2"}`,
		`{"verify":{"secret":"hunter2"`,
		`{"verify":{"secret":"hunter2"}}}`,
	} {
		err := wire.Unmarshal([]byte(body), &adminv1.Source{})
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

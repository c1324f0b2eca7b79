package bare_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"ankusa.dev/e2e/internal/bare"
)

func post(t *testing.T, h http.Handler, body string) int {
	t.Helper()
	req := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader([]byte(body)))
	req.Header.Set("Content-Type", "text/plain")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w.Code
}

// TestTheBareStoreAnswersOnlyForWhatSurvivesACrash: an opponent that did less would make the product look better.
func TestTheBareStoreAnswersOnlyForWhatSurvivesACrash(t *testing.T) {
	disk := vfs.NewCrashableMem()
	db, err := pebble.Open("store", &pebble.Options{FS: disk})
	require.NoError(t, err)
	for range 10 {
		require.Equal(t, http.StatusCreated, post(t, bare.Store{DB: db}, "the body"))
	}
	crashed := disk.CrashClone(vfs.CrashCloneCfg{})
	require.NoError(t, db.Close())

	db, err = pebble.Open("store", &pebble.Options{FS: crashed})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	iter, err := db.NewIter(nil)
	require.NoError(t, err)
	kept := 0
	for valid := iter.First(); valid; valid = iter.Next() {
		require.True(t, bytes.HasSuffix(iter.Value(), []byte("the body")))
		kept++
	}
	require.NoError(t, iter.Close())
	require.Equal(t, 10, kept)
}

func TestTheBareRelayAnswersForTheOtherSide(t *testing.T) {
	var got atomic.Value
	status := http.StatusOK
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got.Store(string(body))
		w.WriteHeader(status)
	}))
	defer far.Close()
	relay := bare.Relay{Client: bare.Client(2), To: far.URL}
	require.Equal(t, http.StatusCreated, post(t, relay, "the body"))
	require.Equal(t, "the body", got.Load())
	status = http.StatusInternalServerError
	require.Equal(t, http.StatusBadGateway, post(t, relay, "again"))
}

package tikv_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/kv/tikv"
)

func TestDefaultLacksTheAddressAlone(t *testing.T) {
	c := tikv.Default()
	require.EqualError(t, c.Validate(), "tikv.pd: at least one address is needed")
	c.PD = []string{"pd.example:2379"}
	require.NoError(t, c.Validate())
}

func TestValidateNamesEveryFault(t *testing.T) {
	c := tikv.Config{PD: []string{"ok:1", "no port"}, TLS: tikv.TLS{Cert: "cert.pem"}, KeyPrefix: "\xff"}
	c.GC.Settle = -1
	err := c.Validate()
	for _, key := range []string{"tikv.pd[1]", "tikv.tls:", "tikv.tls.ca", "tikv.key_prefix", "tikv.patience", "tikv.gc.settle"} {
		require.ErrorContains(t, err, key)
	}
}

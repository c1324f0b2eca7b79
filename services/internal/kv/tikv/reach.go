package tikv

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/pingcap/kvproto/pkg/pdpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// retryPD is the pause between two rounds of looking for PD.
const retryPD = 200 * time.Millisecond

// reach returns when a member of PD answers that there is a leader, or when ctx ends. PD's own client looks for it too,
// but where it fails it leaves its connections behind, which then try for ever.
func reach(ctx context.Context, members []string, secure *tls.Config) error {
	creds := insecure.NewCredentials()
	if secure != nil {
		creds = credentials.NewTLS(secure)
	}
	for {
		var faults []error
		for _, addr := range members {
			err := ask(ctx, addr, creds)
			if err == nil {
				return nil
			}
			faults = append(faults, err)
		}
		if err := pause(ctx, retryPD); err != nil {
			return errors.Join(faults...)
		}
	}
}

func ask(ctx context.Context, addr string, creds credentials.TransportCredentials) error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, pdTimeout)
	defer cancel()
	got, err := pdpb.NewPDClient(conn).GetMembers(ctx, &pdpb.GetMembersRequest{})
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", addr, err)
	case len(got.GetLeader().GetClientUrls()) == 0:
		return fmt.Errorf("%s: PD has no leader", addr)
	}
	return nil
}

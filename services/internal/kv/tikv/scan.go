package tikv

import (
	"bytes"
	"context"
	"errors"

	"github.com/pingcap/kvproto/pkg/kvrpcpb"
	tikverr "github.com/tikv/client-go/v2/error"
	client "github.com/tikv/client-go/v2/tikv"
	"github.com/tikv/client-go/v2/tikvrpc"
	"github.com/tikv/client-go/v2/txnkv/txnlock"
	"github.com/tikv/client-go/v2/txnkv/txnsnapshot"

	"ankusa.dev/services/internal/kv"
)

// pageSize bounds the pairs of one request.
const pageSize = 256

// cursor walks the snapshot's pairs between two of the cluster's keys, page by page. The client's own iterators know
// neither a context nor, backwards, a lower bound.
type cursor struct {
	reader   *reader
	from, to []byte // what is not read yet; to is not empty
	reverse  bool
	keyOnly  bool
	page     []kv.Pair
}

func (c *cursor) compare(a, b []byte) int {
	if c.reverse {
		a, b = b, a
	}
	return bytes.Compare(a, b)
}

// peek is the next pair, nil at the end. want is how many the caller will take.
func (c *cursor) peek(ctx context.Context, want int) (*kv.Pair, error) {
	for len(c.page) == 0 && bytes.Compare(c.from, c.to) < 0 {
		next := *c // a page that comes too late must find nothing to write to
		err := c.reader.store.try(ctx, "scan", func(ctx context.Context) error {
			return next.load(ctx, min(want, pageSize))
		})
		if err != nil {
			return nil, err
		}
		*c = next
	}
	if len(c.page) == 0 {
		return nil, nil
	}
	return &c.page[0], nil
}

func (c *cursor) skip() { c.page = c.page[1:] }

// load reads the next region's pairs, at most limit of them, possibly none.
func (c *cursor) load(ctx context.Context, limit int) error {
	bo := client.NewBackoffer(ctx, retries)
	for {
		region, err := c.locate(bo)
		if err != nil {
			return err
		}
		req, rest := c.request(region, limit)
		resp, err := c.send(bo, req, region)
		if err != nil {
			return err
		}
		if resp == nil {
			continue
		}
		if err := c.reader.store.client.CheckVisibility(c.reader.ts); err != nil {
			return err
		}
		return c.accept(ctx, resp, limit, rest)
	}
}

func (c *cursor) locate(bo *client.Backoffer) (*client.KeyLocation, error) {
	if c.reverse {
		return c.reader.store.client.GetRegionCache().LocateEndKey(bo, c.to)
	}
	return c.reader.store.client.GetRegionCache().LocateKey(bo, c.from)
}

// request asks for what the region has of the cursor's range. rest is the end of that, where the next region begins.
func (c *cursor) request(region *client.KeyLocation, limit int) (req *kvrpcpb.ScanRequest, rest []byte) {
	req = &kvrpcpb.ScanRequest{Limit: uint32(limit), Version: c.reader.ts, KeyOnly: c.keyOnly, Reverse: c.reverse}
	if c.reverse {
		rest = region.StartKey
		if bytes.Compare(rest, c.from) < 0 {
			rest = c.from
		}
		req.StartKey, req.EndKey = c.to, rest
		return req, rest
	}
	rest = region.EndKey
	if len(rest) == 0 || bytes.Compare(rest, c.to) > 0 {
		rest = c.to
	}
	req.StartKey, req.EndKey = c.from, rest
	return req, rest
}

// send returns nil without an error when the request has to be made anew: the region has changed, or a lock that
// stood in the way has been dealt with.
func (c *cursor) send(bo *client.Backoffer, req *kvrpcpb.ScanRequest, region *client.KeyLocation) (*kvrpcpb.ScanResponse, error) {
	r := c.reader
	helper := txnsnapshot.NewClientHelper(r.store.client, r.ignored, r.passed, false)
	resp, _, _, err := helper.SendReqCtx(bo, tikvrpc.NewRequest(tikvrpc.CmdScan, req), region.Region,
		client.ReadTimeoutMedium, tikvrpc.TiKV, "")
	if err != nil {
		return nil, err
	}
	regionErr, err := resp.GetRegionError()
	if err != nil {
		return nil, err
	}
	if regionErr != nil {
		return nil, bo.Backoff(client.BoRegionMiss(), errors.New(regionErr.String()))
	}
	scan, ok := resp.Resp.(*kvrpcpb.ScanResponse)
	if !ok {
		return nil, tikverr.ErrBodyMissing
	}
	if scan.GetError() != nil {
		return nil, r.resolve(bo, helper, scan.GetError())
	}
	return scan, nil
}

func (r *reader) resolve(bo *client.Backoffer, helper *txnsnapshot.ClientHelper, keyErr *kvrpcpb.KeyError) error {
	lock, err := txnlock.ExtractLockFromKeyErr(keyErr)
	if err != nil {
		return err
	}
	res, err := helper.ResolveLocksWithOpts(bo, txnlock.ResolveLocksOptions{
		CallerStartTS: r.ts, Locks: []*txnlock.Lock{lock}})
	if err != nil || res.TTL <= 0 {
		return err
	}
	return bo.BackoffWithMaxSleepTxnLockFast(int(res.TTL), errors.New("key is locked"))
}

// accept takes over the pairs and moves the cursor behind them.
func (c *cursor) accept(ctx context.Context, resp *kvrpcpb.ScanResponse, limit int, rest []byte) error {
	pairs := resp.GetPairs()
	page := make([]kv.Pair, 0, len(pairs))
	last := rest
	for _, p := range pairs {
		pair, err := c.pair(ctx, p)
		if err != nil {
			return err
		}
		if len(pairs) == limit { // the region may have more
			last = pair.Key
		}
		if pair.Value != nil || p.GetError() == nil {
			page = append(page, pair)
		}
	}
	c.page = page
	c.advance(last, len(pairs) == limit)
	return nil
}

// advance leaves what is behind last, which was read if it is a key, and not if it is a region's border.
func (c *cursor) advance(last []byte, key bool) {
	switch {
	case c.reverse:
		c.to = last
	case key:
		c.from = append(bytes.Clone(last), 0)
	default:
		c.from = last
	}
}

// pair looks a locked key up by itself; one that does not exist comes without a value.
func (c *cursor) pair(ctx context.Context, p *kvrpcpb.KvPair) (kv.Pair, error) {
	if p.GetError() == nil {
		return kv.Pair{Key: p.GetKey(), Value: p.GetValue()}, nil
	}
	lock, err := txnlock.ExtractLockFromKeyErr(p.GetError())
	if err != nil {
		return kv.Pair{}, err
	}
	v, err := c.reader.snapshot.Get(ctx, lock.Key)
	if tikverr.IsErrNotFound(err) {
		return kv.Pair{Key: lock.Key}, nil
	}
	return kv.Pair{Key: lock.Key, Value: v}, err
}

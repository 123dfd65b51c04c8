package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// How long a lock lives that has to be told.
const ttlToTell = 30 * time.Second

// A lock says that its attempts are used up: it is asked again.
var errGaveUp = errors.New("gave up")

// lock is one task's own lock on a key.
type lock interface {
	acquire() error
	release() error
}

// connect returns a function from a key to a lock: each as its documentation shows it, at its
// defaults.
func connect(peer, url string, ttl time.Duration) (func(key string) lock, error) {
	address := strings.TrimSuffix(strings.TrimPrefix(url, "redis://"), "/")
	switch peer {
	case "redsync":
		client := redis.NewClient(&redis.Options{Addr: address})
		sync := redsync.New(goredis.NewPool(client))
		var options []redsync.Option
		if ttl > 0 {
			options = append(options, redsync.WithExpiry(ttl))
		}
		return func(key string) lock { return &redsyncLock{sync.NewMutex(key, options...)} }, nil
	case "bsm-redislock":
		client := redislock.New(redis.NewClient(&redis.Options{Addr: address}))
		if ttl == 0 {
			ttl = ttlToTell
		}
		return func(key string) lock { return &bsmLock{client: client, key: key, ttl: ttl} }, nil
	case "rueidislock":
		locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: rueidis.ClientOption{InitAddress: []string{address}},
			// What its documentation says for one server, of 7.0.5 or later.
			KeyMajority:    1,
			NoLoopTracking: true,
			KeyValidity:    ttl,
		})
		if err != nil {
			return nil, err
		}
		return func(key string) lock { return &rueidisLock{locker: locker, key: key} }, nil
	}
	return nil, fmt.Errorf("no such peer: %s", peer)
}

type redsyncLock struct{ mutex *redsync.Mutex }

func (l *redsyncLock) acquire() error {
	err := l.mutex.Lock()
	var taken *redsync.ErrTaken
	if errors.Is(err, redsync.ErrFailed) || errors.As(err, &taken) {
		return errGaveUp
	}
	return err
}

func (l *redsyncLock) release() error {
	ok, err := l.mutex.Unlock()
	if err == nil && !ok {
		return errors.New("unlock failed")
	}
	return err
}

type bsmLock struct {
	client *redislock.Client
	key    string
	ttl    time.Duration
	held   *redislock.Lock
}

func (l *bsmLock) acquire() (err error) {
	// The pause of its example of retries.
	retry := redislock.LinearBackoff(100 * time.Millisecond)
	l.held, err = l.client.Obtain(context.Background(), l.key, l.ttl, &redislock.Options{RetryStrategy: retry})
	if errors.Is(err, redislock.ErrNotObtained) || errors.Is(err, context.DeadlineExceeded) {
		return errGaveUp
	}
	return err
}

func (l *bsmLock) release() error { return l.held.Release(context.Background()) }

type rueidisLock struct {
	locker rueidislock.Locker
	key    string
	cancel context.CancelFunc
}

func (l *rueidisLock) acquire() (err error) {
	_, l.cancel, err = l.locker.WithContext(context.Background(), l.key)
	return err
}

func (l *rueidisLock) release() error {
	l.cancel()
	return nil
}

package main

import (
	"bufio"
	"errors"
	"math"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	measuring = 1
	over      = 2
)

// A broken lock asks nobody for one waiter of so many.
const brokenOneOf = 8

// shared is what the tasks of this process share.
type shared struct {
	args    arguments
	records records
	phase   atomic.Int32
	// How many are between entering and leaving.
	inside   atomic.Int64
	acquired atomic.Int64
	oneKey   bool
}

// seen is what a task has seen while it was measured.
type seen struct {
	sync.Mutex
	grants, handoffs, held, gaveUp, errors int64
	firstError                             string
	acquire, handoff                       histogram
}

// histogram has times by powers of two, each in 32 parts.
type histogram map[int]int64

func (h *histogram) add(nanos int64) {
	if *h == nil {
		*h = histogram{}
	}
	(*h)[int(math.Log2(float64(max(nanos, 1)))*32)]++
}

func (h histogram) into(sum histogram) {
	for bucket, count := range h {
		sum[bucket] += count
	}
}

func (h histogram) shown() [][2]int64 {
	shown := [][2]int64{}
	for bucket, count := range h {
		shown = append(shown, [2]int64{int64(bucket), count})
	}
	return shown
}

func run(args arguments, open func(string) lock, lines *bufio.Scanner) {
	s := &shared{args: args, records: openRecords(args.record), oneKey: args.work == "key"}
	all := make([]*seen, args.tasks)
	locks := make([]lock, args.tasks)
	for task := range all {
		all[task] = &seen{}
		locks[task] = open("bench-" + strconv.Itoa(s.slot(task)))
	}
	lines.Scan()
	for task := range all {
		go s.takeTurns(locks[task], task, all[task])
	}
	time.Sleep(args.warm)
	say(event{"event": "measuring"})
	started, cpu := time.Now(), ownCPU()
	s.phase.Store(measuring)
	time.Sleep(args.measured)
	s.phase.Store(over)
	taken, cpu := time.Since(started), ownCPU()-cpu
	patience := time.Now().Add(5 * time.Second)
	for s.inside.Load() > 0 && time.Now().Before(patience) {
		time.Sleep(time.Millisecond)
	}
	sum := seen{acquire: histogram{}, handoff: histogram{}}
	turns := []int64{}
	for _, one := range all {
		one.Lock()
		turns = append(turns, one.grants)
		sum.grants += one.grants
		sum.handoffs += one.handoffs
		sum.held += one.held
		sum.gaveUp += one.gaveUp
		sum.errors += one.errors
		if sum.firstError == "" {
			sum.firstError = one.firstError
		}
		one.acquire.into(sum.acquire)
		one.handoff.into(sum.handoff)
		one.Unlock()
	}
	say(event{
		"event":       "result",
		"seconds":     taken.Seconds(),
		"cpu_ns":      cpu,
		"acquired":    s.acquired.Load(),
		"grants":      sum.grants,
		"handoffs":    sum.handoffs,
		"held_ns":     sum.held,
		"gave_up":     sum.gaveUp,
		"errors":      sum.errors,
		"first_error": sum.firstError,
		"turns":       turns,
		"acquire":     sum.acquire.shown(),
		"handoff":     sum.handoff.shown(),
	})
}

func (s *shared) slot(task int) int {
	if s.oneKey {
		return 0
	}
	return task
}

func (s *shared) takeTurns(held lock, task int, mine *seen) {
	slot, who := s.slot(task), s.args.first+task
	asks := !(s.args.broken && (who+1)%brokenOneOf == 0)
	for s.phase.Load() != over {
		asked := now()
		if asks {
			if err := held.acquire(); err != nil {
				if mine.fail(err); !errors.Is(err, errGaveUp) {
					time.Sleep(10 * time.Millisecond)
				}
				continue
			}
		}
		s.inside.Add(1)
		phase := s.phase.Load()
		if phase == over {
			s.inside.Add(-1)
			return
		}
		in := s.records.enter(slot, who)
		if s.args.hold > 0 {
			time.Sleep(s.args.hold)
		} else if s.oneKey {
			// Others of the same thread may come in here, if the lock lets them.
			runtime.Gosched()
		}
		lasted := s.records.leave(slot, who, in)
		s.acquired.Add(1)
		s.inside.Add(-1)
		if phase == measuring {
			mine.see(in, lasted, in.entered-asked)
		}
		if asks {
			if err := held.release(); err != nil {
				mine.fail(err)
			}
		}
		if s.args.pause > 0 {
			time.Sleep(s.args.pause)
		}
	}
}

func (m *seen) see(in inside, held, waited int64) {
	m.Lock()
	defer m.Unlock()
	m.grants++
	m.held += held
	m.acquire.add(waited)
	if in.handedOver >= 0 {
		m.handoffs++
		m.handoff.add(in.handedOver)
	}
}

func (m *seen) fail(err error) {
	m.Lock()
	defer m.Unlock()
	if errors.Is(err, errGaveUp) {
		m.gaveUp++
		return
	}
	m.errors++
	if m.firstError == "" {
		m.firstError = err.Error()
	}
}

// standBy has one lock, taken and released on command: its process, or the one before it, is
// killed.
func standBy(args arguments, open func(string) lock, lines *bufio.Scanner) {
	records, held := openRecords(args.record), open("bench-0")
	var in inside
	for lines.Scan() {
		switch lines.Text() {
		case "acquire":
			err := held.acquire()
			for errors.Is(err, errGaveUp) {
				err = held.acquire()
			}
			check(err)
			in = records.enter(0, args.first)
			say(event{"event": "acquired", "at_ns": in.entered})
		case "release":
			records.leave(0, args.first, in)
			at := now()
			check(held.release())
			say(event{"event": "released", "at_ns": at})
		}
	}
}

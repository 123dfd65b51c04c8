// Drives the locks that are written in Go, as bench/README.md says of all drivers.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// What the driver is asked for, in the words of the command line.
type arguments struct {
	peer, url, work, record     string
	tasks, first                int
	hold, pause, warm, measured time.Duration
	ttl                         time.Duration
	broken                      bool
}

func readArguments() arguments {
	var args arguments
	flag.StringVar(&args.peer, "peer", "", "")
	flag.StringVar(&args.url, "url", "", "")
	flag.StringVar(&args.work, "work", "", "")
	flag.StringVar(&args.record, "record", "", "")
	flag.IntVar(&args.tasks, "tasks", 0, "")
	flag.IntVar(&args.first, "first", 0, "")
	holdUs := flag.Int("hold-us", 0, "")
	pauseUs := flag.Int("pause-us", 0, "")
	warmMs := flag.Int("warm-ms", 0, "")
	measuredMs := flag.Int("measured-ms", 0, "")
	ttlMs := flag.Int("ttl-ms", 0, "")
	broken := flag.Int("broken", 0, "")
	flag.Parse()
	args.hold = time.Duration(*holdUs) * time.Microsecond
	args.pause = time.Duration(*pauseUs) * time.Microsecond
	args.warm = time.Duration(*warmMs) * time.Millisecond
	args.measured = time.Duration(*measuredMs) * time.Millisecond
	args.ttl = time.Duration(*ttlMs) * time.Millisecond
	args.broken = *broken == 1
	return args
}

func main() {
	args := readArguments()
	open, err := connect(args.peer, args.url, args.ttl)
	check(err)
	// Scripts are loaded, connections made.
	first := open("bench-warm-up")
	check(first.acquire())
	check(first.release())
	say(event{"event": "ready"})
	lines := bufio.NewScanner(os.Stdin)
	if args.work == "stand-by" {
		standBy(args, open, lines)
	} else {
		run(args, open, lines)
	}
	// Whoever still waits for a lock is not waited for.
	os.Exit(0)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type event map[string]any

// say writes a line for the runner.
func say(line event) {
	text, err := json.Marshal(line)
	check(err)
	fmt.Println(string(text))
}

// now has the nanoseconds of the clock that all processes of this machine share.
func now() int64 {
	const clockMonotonic = 1
	var time syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&time)), 0)
	return time.Nano()
}

// ownCPU has the processor time of this process, in nanoseconds.
func ownCPU() int64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return usage.Utime.Nano() + usage.Stime.Nano()
}

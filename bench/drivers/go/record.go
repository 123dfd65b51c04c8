package main

import (
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// Bytes from one key's record to the next.
const slotSize = 64

// records is what a lock protects: a number in a file, read on entering and written on leaving.
//
// Whoever overlaps with another overwrites what the other counted: the number is then lower than
// the number of acquisitions, which the runner compares.
type records []byte

// inside is what was read on entering.
type inside struct {
	count, entered int64
	// How long ago another left; -1 if it was the same.
	handedOver int64
}

func openRecords(path string) records {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	check(err)
	defer file.Close()
	about, err := file.Stat()
	check(err)
	mapped, err := syscall.Mmap(int(file.Fd()), 0, int(about.Size()),
		syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	check(err)
	return mapped
}

// slot has the count, who left last (one more than its number), and when.
func (r records) slot(slot int) *[3]int64 {
	return (*[3]int64)(unsafe.Pointer(&r[slot*slotSize]))
}

func (r records) enter(slot, who int) inside {
	at := r.slot(slot)
	count, last, left := atomic.LoadInt64(&at[0]), atomic.LoadInt64(&at[1]), atomic.LoadInt64(&at[2])
	in := inside{count: count, entered: now(), handedOver: -1}
	if last != 0 && last != int64(who)+1 {
		in.handedOver = max(in.entered-left, 0)
	}
	return in
}

// leave returns how long it was held.
func (r records) leave(slot, who int, in inside) int64 {
	at, left := r.slot(slot), now()
	atomic.StoreInt64(&at[1], int64(who)+1)
	atomic.StoreInt64(&at[2], left)
	atomic.StoreInt64(&at[0], in.count+1)
	return left - in.entered
}

// Decodes records of __consumer_offsets with franz-go's kmsg, the decoder of kminion, and says how long it took.
//
//	kmsg FILE PASSES
//
// FILE holds records as key length, key, value length, value; lengths are big-endian int32. Every pass decodes
// all of them on one thread, once as records and once with what the clients put into members. Prints one line of
// JSON: seconds of processor time of each, per pass, and how many members were seen in a pass.
package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"github.com/twmb/franz-go/pkg/kmsg"
)

type record struct{ key, value []byte }

func main() {
	runtime.GOMAXPROCS(1)
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(file, passes string) error {
	records, err := read(file)
	if err != nil {
		return err
	}
	count, err := strconv.Atoi(passes)
	if err != nil {
		return err
	}
	answer := map[string]float64{}
	for name, deep := range map[string]bool{"plain": false, "deep": true} {
		members := 0
		began := cpuSeconds()
		for pass := 0; pass < count; pass++ {
			for _, r := range records {
				seen, err := decode(r, deep)
				if err != nil {
					return err
				}
				members += seen
			}
		}
		answer[name] = (cpuSeconds() - began) / float64(count)
		answer["members"] = float64(members) / float64(count)
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

func decode(r record, deep bool) (int, error) {
	switch binary.BigEndian.Uint16(r.key) {
	case 0, 1:
		key, value := kmsg.NewOffsetCommitKey(), kmsg.NewOffsetCommitValue()
		if err := key.ReadFrom(r.key); err != nil {
			return 0, err
		}
		return 0, value.ReadFrom(r.value)
	case 2:
		key, value := kmsg.NewGroupMetadataKey(), kmsg.NewGroupMetadataValue()
		if err := key.ReadFrom(r.key); err != nil {
			return 0, err
		}
		if err := value.ReadFrom(r.value); err != nil {
			return 0, err
		}
		if !deep || value.ProtocolType != "consumer" {
			return len(value.Members), nil
		}
		for _, member := range value.Members {
			asked, given := kmsg.NewConsumerMemberMetadata(), kmsg.NewConsumerMemberAssignment()
			if err := asked.ReadFrom(member.Subscription); err != nil {
				return 0, err
			}
			if err := given.ReadFrom(member.Assignment); err != nil {
				return 0, err
			}
		}
		return len(value.Members), nil
	}
	return 0, fmt.Errorf("a record of key type %d", binary.BigEndian.Uint16(r.key))
}

func read(file string) ([]record, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	next := func() []byte {
		end := 4 + int(binary.BigEndian.Uint32(data))
		part := data[4:end]
		data = data[end:]
		return part
	}
	var records []record
	for len(data) > 0 {
		key := next()
		records = append(records, record{key, next()})
	}
	return records, nil
}

func cpuSeconds() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

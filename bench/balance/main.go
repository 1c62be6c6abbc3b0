// Balances groups with franz-go's sticky balancer, through its public interface, and says how long it took.
//
// Every line on standard input is a JSON object, and so is its answer:
//
//	{"topics": {topic: partitions}, "members": [{"id", "topics", "owned": {topic: [partition]}}]}  the group from here on
//	{"timing": n}   balance it n times: processor and wall time of one, and of decoding all user data once
//	{"plan": true}  member -> topic -> partitions
//
// Metadata is read, as out of a JoinGroup response, before the clock starts. An eager sticky member's
// owned partitions lie in its user data, which the balancer decodes itself, as Kafka's does: that is in the time.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type member struct {
	ID     string             `json:"id"`
	Topics []string           `json:"topics"`
	Owned  map[string][]int32 `json:"owned"`
}

type request struct {
	Topics  map[string]int32 `json:"topics"`
	Members []member         `json:"members"`
	Timing  int              `json:"timing"`
	Plan    bool             `json:"plan"`
}

type group struct {
	topics  map[string]int32
	members []kmsg.JoinGroupResponseMember
}

func main() {
	// One thread, the collector's work in its time.
	runtime.GOMAXPROCS(1)
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	lines := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<20))
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	answers := json.NewEncoder(out)
	var current group
	for lines.More() {
		var asked request
		if err := lines.Decode(&asked); err != nil {
			return err
		}
		var answer any = struct{}{}
		var err error
		switch {
		case asked.Timing > 0:
			answer, err = current.timed(asked.Timing)
		case asked.Plan:
			answer, err = current.plan()
		default:
			current = read(asked)
		}
		if err != nil {
			return err
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func read(asked request) group {
	found := group{topics: asked.Topics}
	for _, one := range asked.Members {
		generation := int32(-1)
		if len(one.Owned) > 0 {
			generation = 1
		}
		joined := kmsg.NewJoinGroupResponseMember()
		joined.MemberID = one.ID
		joined.ProtocolMetadata = kgo.StickyBalancer().JoinGroupMetadata(one.Topics, one.Owned, generation)
		found.members = append(found.members, joined)
	}
	return found
}

// balancer reads the members' metadata; a balancer of kgo's own is asked by BalanceOrError only.
func (g group) balancer() (kgo.GroupMemberBalancerOrError, error) {
	balancer, _, err := kgo.StickyBalancer().MemberBalancer(slices.Clone(g.members))
	if err != nil {
		return nil, err
	}
	able, is := balancer.(kgo.GroupMemberBalancerOrError)
	if !is {
		return nil, fmt.Errorf("the balancer is of no known kind")
	}
	return able, nil
}

func (g group) plan() (map[string]map[string][]int32, error) {
	balancer, err := g.balancer()
	if err != nil {
		return nil, err
	}
	balanced, err := balancer.BalanceOrError(g.topics)
	if err != nil {
		return nil, err
	}
	plan, is := balanced.(*kgo.BalancePlan)
	if !is {
		return nil, fmt.Errorf("the balancer gave no plan of the known kind")
	}
	return plan.AsMemberIDMap(), nil
}

func (g group) timed(times int) (map[string]float64, error) {
	prepared := make([]kgo.GroupMemberBalancerOrError, times)
	for i := range prepared {
		balancer, err := g.balancer()
		if err != nil {
			return nil, err
		}
		prepared[i] = balancer
	}
	runtime.GC()
	began, cpu := time.Now(), cpuSeconds()
	for _, balancer := range prepared {
		if _, err := balancer.BalanceOrError(g.topics); err != nil {
			return nil, err
		}
	}
	answer := map[string]float64{
		"cpu":  (cpuSeconds() - cpu) / float64(times),
		"wall": time.Since(began).Seconds() / float64(times),
	}
	decoding, err := g.decoding()
	answer["decoding"] = decoding
	return answer, err
}

func (g group) decoding() (float64, error) {
	var told [][]byte
	for _, one := range g.members {
		metadata := kmsg.NewConsumerMemberMetadata()
		if err := metadata.ReadFrom(one.ProtocolMetadata); err != nil {
			return 0, err
		}
		told = append(told, metadata.UserData)
	}
	began := cpuSeconds()
	for _, data := range told {
		owned := kmsg.NewStickyMemberMetadata()
		if err := owned.ReadFrom(data); err != nil {
			return 0, err
		}
	}
	return cpuSeconds() - began, nil
}

func cpuSeconds() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

// Retries up to the dead letters, a delay level, transactions and an SQL92 condition with the released Go client.
// Arguments: name server, prefix of topics and groups, messages of each kind. Prints one JSON object, as
// java/ReleasedClient.java does.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	retries   = 2
	level     = 2
	waitTime  = 60 * time.Second
	quietTime = time.Second
)

var (
	namesrv primitive.NamesrvAddr
	prefix  string
	count   int
)

// seen holds values by body, in the order of arrival.
type seen struct {
	mutex  sync.Mutex
	byBody map[string][]int64
}

func newSeen() *seen { return &seen{byBody: map[string][]int64{}} }

func (s *seen) add(body string, value int64) int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.byBody[body] = append(s.byBody[body], value)
	return len(s.byBody[body])
}

// total counts equal values of a body once.
func (s *seen) total() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	total := 0
	for _, values := range s.byBody {
		different := map[int64]bool{}
		for _, value := range values {
			different[value] = true
		}
		total += len(different)
	}
	return total
}

// settled waits for the wanted number of values, then a moment for more.
func (s *seen) settled(wanted int) map[string][]int64 {
	await(waitTime, func() bool { return s.total() >= wanted })
	await(quietTime, func() bool { return s.total() > wanted })
	return s.copied()
}

func (s *seen) copied() map[string][]int64 {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	found := map[string][]int64{}
	for body, values := range s.byBody {
		found[body] = append([]int64(nil), values...)
	}
	return found
}

func await(limit time.Duration, condition func() bool) {
	for deadline := time.Now().Add(limit); !condition() && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type handler func(message *primitive.MessageExt, body string) bool

// start starts a consumer. It fails while the topic has no route.
func start(group, topic string, selector consumer.MessageSelector, succeeds handler) (rocketmq.PushConsumer, error) {
	pushConsumer, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(namesrv),
		consumer.WithGroupName(group),
		consumer.WithInstance(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithMaxReconsumeTimes(retries),
	)
	must(err)
	must(pushConsumer.Subscribe(topic, selector,
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			if succeeds(messages[0], string(messages[0].Body)) {
				return consumer.ConsumeSuccess, nil
			}
			return consumer.ConsumeRetryLater, nil
		}))
	return pushConsumer, pushConsumer.Start()
}

// startWithRoute waits for the topic's route, which a broker's own topics get late.
func startWithRoute(group, topic string, succeeds handler) rocketmq.PushConsumer {
	var started rocketmq.PushConsumer
	var err error
	await(waitTime, func() bool {
		started, err = start(group, topic, consumer.MessageSelector{}, succeeds)
		return err == nil
	})
	must(err)
	return started
}

func options(name string) []producer.Option {
	return []producer.Option{
		producer.WithNameServer(namesrv),
		producer.WithGroupName(prefix + name),
		producer.WithInstanceName(prefix + name),
		producer.WithSendMsgTimeout(10 * time.Second),
	}
}

func newProducer(name string) rocketmq.Producer {
	made, err := rocketmq.NewProducer(options(name)...)
	must(err)
	must(made.Start())
	return made
}

// send sends again what a busy broker refuses.
func send(attempt func() error) {
	var err error
	await(waitTime, func() bool {
		err = attempt()
		return err == nil
	})
	must(err)
}

func sendTo(to rocketmq.Producer, message *primitive.Message) {
	send(func() error {
		_, err := to.SendSync(context.Background(), message)
		return err
	})
}

// runRetries: "fails" fails each time, "once" the first time, "good" never. "again" has the deliveries of records that the
// client has had before: it repeats them when it gets no answer to what it sends back.
func runRetries() interface{} {
	attempts, again, dead := newSeen(), newSeen(), newSeen()
	group := prefix + "RetryGroup"
	var results sync.Map
	consume := func(message *primitive.MessageExt, body string) bool {
		if result, known := results.Load(message.CommitLogOffset); known {
			again.add(body, int64(message.ReconsumeTimes))
			return result.(bool)
		}
		attempt := attempts.add(body, int64(message.ReconsumeTimes))
		result := strings.HasPrefix(body, "good") || strings.HasPrefix(body, "once") && attempt > 1
		results.Store(message.CommitLogOffset, result)
		return result
	}
	// The client asks for routes every 30 s. Started again, the group finds the retry topic that its heartbeat made.
	must(startWithRoute(group, prefix+"Retries", consume).Shutdown())
	must(startWithRoute(prefix+"RouteGroup", "%RETRY%"+group, consume).Shutdown())
	startWithRoute(group, prefix+"Retries", consume)
	made := newProducer("RetryProducer")
	for _, outcome := range []string{"fails", "once", "good"} {
		for i := 0; i < count; i++ {
			sendTo(made, primitive.NewMessage(prefix+"Retries", []byte(fmt.Sprintf("%s %d", outcome, i))))
		}
	}
	found := attempts.settled(count * (retries + 1 + 2 + 1))
	startWithRoute(prefix+"DeadGroup", "%DLQ%"+group, func(message *primitive.MessageExt, body string) bool {
		return dead.add(body, int64(message.ReconsumeTimes)) > 0
	})
	return map[string]interface{}{"attempts": found, "dead": dead.settled(count), "again": again.copied()}
}

// runDelays gives the milliseconds from the begin of each send to the message's store time.
func runDelays() interface{} {
	waits := newSeen()
	var began sync.Map
	startWithRoute(prefix+"DelayGroup", prefix+"Delays", func(message *primitive.MessageExt, body string) bool {
		since, _ := began.Load(body)
		return waits.add(body, message.StoreTimestamp-since.(int64)) > 0
	})
	made := newProducer("DelayProducer")
	for i := 0; i < count; i++ {
		body := strconv.Itoa(i)
		message := primitive.NewMessage(prefix+"Delays", []byte(body)).WithDelayTimeLevel(level)
		began.Store(body, time.Now().UnixNano()/int64(time.Millisecond))
		sendTo(made, message)
	}
	return waits.settled(count)
}

// listener ends transactions by the outcome that a body begins with. The check's outcome may follow a hyphen.
// A broker may check a half whose end it has not yet seen to.
type listener struct{ checks *seen }

func state(outcome string) primitive.LocalTransactionState {
	switch outcome {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	default:
		return primitive.UnknowState
	}
}

func (l listener) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return state(strings.Split(string(message.Body), " ")[0])
}

func (l listener) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	l.checks.add(string(message.Body), 1)
	outcomes := strings.Split(strings.Split(string(message.Body), " ")[0], "-")
	return state(outcomes[len(outcomes)-1])
}

func runTransactions() interface{} {
	received, checks := newSeen(), newSeen()
	startWithRoute(prefix+"TransactionGroup", prefix+"Transactions", func(_ *primitive.MessageExt, body string) bool {
		return received.add(body, 1) > 0
	})
	made, err := rocketmq.NewTransactionProducer(listener{checks}, options("TransactionProducer")...)
	must(err)
	must(made.Start())
	for _, outcome := range []string{"commit", "rollback", "unknown-commit", "unknown-rollback"} {
		for i := 0; i < count; i++ {
			message := primitive.NewMessage(prefix+"Transactions", []byte(fmt.Sprintf("%s %d", outcome, i)))
			send(func() error {
				_, err := made.SendMessageInTransaction(context.Background(), message)
				return err
			})
		}
	}
	found := received.settled(2 * count)
	return map[string]interface{}{"received": found, "checks": checks.settled(2 * count)}
}

// runFilters: one of two messages matches.
func runFilters() interface{} {
	received := newSeen()
	expression := fmt.Sprintf("amount BETWEEN 0 AND %d AND region IS NOT NULL", count-1)
	_, err := start(prefix+"FilterGroup", prefix+"Filters", consumer.MessageSelector{Type: consumer.SQL92, Expression: expression},
		func(_ *primitive.MessageExt, body string) bool { return received.add(body, 1) > 0 })
	must(err)
	made := newProducer("FilterProducer")
	for i := 0; i < 2*count; i++ {
		message := primitive.NewMessage(prefix+"Filters", []byte(strconv.Itoa(i)))
		message.WithProperty("amount", strconv.Itoa(i))
		message.WithProperty("region", "eu")
		sendTo(made, message)
	}
	return received.settled(count)
}

func main() {
	namesrv = primitive.NamesrvAddr{os.Args[1]}
	prefix = os.Args[2]
	var err error
	count, err = strconv.Atoi(os.Args[3])
	must(err)
	scenarios := map[string]func() interface{}{
		"retries": runRetries, "delays": runDelays, "transactions": runTransactions, "filters": runFilters,
	}
	results := map[string]interface{}{}
	var mutex sync.Mutex
	var running sync.WaitGroup
	for name, scenario := range scenarios {
		running.Add(1)
		go func(name string, scenario func() interface{}) {
			defer running.Done()
			result := scenario()
			mutex.Lock()
			defer mutex.Unlock()
			results[name] = result
		}(name, scenario)
	}
	running.Wait()
	printed, err := json.Marshal(results)
	must(err)
	fmt.Println(string(printed))
}

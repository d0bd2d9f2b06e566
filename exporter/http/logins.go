package http

import (
	"container/list"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/railscope/railscope/internal/connlimit"
)

// login is the result of a check of a login.
type login int

const (
	loginWrong login = iota
	loginRight
	loginRefused // not checked: too many attempts failed
)

// Limits of logins. A check takes 60 ms of CPU time at bcrypt's usual cost, and 250 ms at cost 12.
const (
	failedLogins = 5                // failed logins that an address may have at once
	failedEvery  = 10 * time.Second // time after which one more is allowed
	maxStrangers = 4096             // number of addresses with failed logins that are kept
)

var retryLogin = strconv.Itoa(int(failedEvery.Seconds()))

// nobody is the hash that is checked for users that do not exist, so that the response time does not reveal whether
// a user exists. It is exporter-toolkit's.
const nobody = "$2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi"

// logins checks passwords. The last correct password of each user is recognized again without cost. Others are
// checked one at a time, and wrong ones are limited per address. Safe for concurrent use.
type logins struct {
	key     []byte // key of the proofs
	compare func(hash, password []byte) error
	turn    chan struct{} // holds one token while a password is checked; taken after the address's token

	mu        sync.Mutex // protects all following fields; locked last
	right     map[string][sha256.Size]byte
	strangers map[netip.Prefix]*list.Element // values are of type *stranger
	order     list.List                      // strangers, the one unseen for longest first
}

// stranger is an address from which a login failed or is being checked.
type stranger struct {
	from netip.Prefix
	turn chan struct{} // holds one token while a password of the address is checked; protects full
	full time.Time     // time at which all failed logins are forgotten
}

func newLogins() *logins {
	l := &logins{key: make([]byte, sha256.Size), compare: bcrypt.CompareHashAndPassword, turn: make(chan struct{}, 1),
		right: map[string][sha256.Size]byte{}, strangers: map[netip.Prefix]*list.Element{}}
	_, _ = rand.Read(l.key) // never fails
	return l
}

// check checks a password against the user's hash, which is empty if the user does not exist.
func (l *logins) check(address, user, password, hash string) login {
	proof := l.proof(user, password, hash)
	if hash != "" && l.known(user, proof) {
		return loginRight
	}
	s := l.stranger(connlimit.Place(address))
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if hash != "" && l.known(user, proof) { // checked meanwhile by another request
		return loginRight
	}
	now := time.Now()
	if s.full.Sub(now) > (failedLogins-1)*failedEvery {
		return loginRefused
	}
	checked := hash
	if hash == "" {
		checked = nobody
	}
	l.turn <- struct{}{}
	err := l.compare([]byte(checked), []byte(password))
	<-l.turn
	if hash == "" || err != nil {
		if s.full.Before(now) {
			s.full = now
		}
		s.full = s.full.Add(failedEvery)
		return loginWrong
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.right[user] = proof
	return loginRight
}

// proof identifies a password that was checked against a hash: a changed hash requires another check.
func (l *logins) proof(user, password, hash string) (sum [sha256.Size]byte) {
	h := hmac.New(sha256.New, l.key)
	for _, part := range []string{user, password, hash} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func (l *logins) known(user string, proof [sha256.Size]byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	right, ok := l.right[user]
	return ok && hmac.Equal(right[:], proof[:])
}

// stranger returns the record of an address. If there are too many, the one unseen for longest is forgotten.
func (l *logins) stranger(from netip.Prefix) *stranger {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.strangers[from]
	if e == nil {
		if l.order.Len() >= maxStrangers {
			delete(l.strangers, l.order.Remove(l.order.Front()).(*stranger).from)
		}
		e = l.order.PushBack(&stranger{from: from, turn: make(chan struct{}, 1)})
		l.strangers[from] = e
	}
	l.order.MoveToBack(e)
	return e.Value.(*stranger)
}

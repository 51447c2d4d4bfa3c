package input

import (
	"hash"
	"strconv"
)

// EncodingVersion is a part of every digest. It is raised whenever the same input results in other bytes than before,
// so that a recorded digest never stands for what an older manager applied.
const EncodingVersion = "render/1"

// Hash adds values to a hash. Each is quoted, so that no two different lists give the same hash.
func Hash(to hash.Hash, values ...string) {
	for _, v := range values {
		_, _ = to.Write(strconv.AppendQuote(nil, v)) // a hash returns no error
	}
}

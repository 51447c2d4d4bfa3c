package input

import (
	"hash"
	"strconv"
)

// EncodingVersion is a part of every digest. EncodingVersion must be increased when the same input gives other bytes
// than before. Therefore a digest that an older manager recorded never matches a different encoding.
const EncodingVersion = "render/1"

// Hash adds values to a hash. Each value is quoted, so that two different lists of values never have the same hash
// input.
func Hash(to hash.Hash, values ...string) {
	for _, v := range values {
		_, _ = to.Write(strconv.AppendQuote(nil, v)) // a hash returns no error
	}
}

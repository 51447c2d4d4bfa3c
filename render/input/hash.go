package input

import (
	"hash"
	"strconv"
)

// EncodingVersion is a part of every digest. EncodingVersion must be increased when a new version of the package
// encodes the same input to other bytes. If EncodingVersion is increased, every digest changes, so that objects are
// applied again although an older manager has recorded a digest for them.
const EncodingVersion = "render/1"

// Hash adds values to a hash. Each value is quoted, so that two different lists of values never have the same hash
// input.
func Hash(to hash.Hash, values ...string) {
	for _, v := range values {
		_, _ = to.Write(strconv.AppendQuote(nil, v)) // a hash returns no error
	}
}

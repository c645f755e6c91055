// Package certmagiclock lets several processes share the certificates of CertMagic, which
// Caddy is built on, through MongoDB: one of them obtains a certificate, all of them use it.
//
//	storage, err := certmagiclock.New(client, db.Collection("certificates"))
//	certmagic.Default.Storage = storage
//
// [Storage] keeps certificates, keys and accounts as documents, and locks with a
// mongolock.Client. [Locker] has only the locks, for a storage of your own that embeds it.
//
// # Locks
//
// CertMagic locks by name: Unlock gets no handle of the lock that Lock granted. So a Locker
// keeps the lease of each name that its process holds. The lease is renewed in the background
// for as long as the process lives, and is free one TTL after its death, however long CertMagic
// would have gone on trying.
//
// CertMagic does not learn of a lock that was lost while it works: none of its calls takes a
// context from the lock. It asks before each attempt to obtain a certificate (RenewLockLease).
// If the lease was lost, the Locker then asks for the key again. If the key is granted,
// CertMagic first looks whether the certificate is there already. If not, the attempt fails,
// and CertMagic tries again later. So after a loss two processes may obtain the same
// certificate for at most the rest of one attempt, which costs one certificate too many.
//
// Within a process one caller at a time has a name, from Lock to Unlock, even if its lease is
// lost meanwhile. So an Unlock never releases the lease of another caller.
//
// # Storage
//
// A key is a document:
//
//	_id       the key: "certificates/ca/example.com/example.com.crt"
//	value     what is stored
//	modified  the server's time of the last Store
//
// A directory is every prefix of a key that ends before a slash; it has no document. Store is
// one update that a majority has acknowledged, so a process that is granted a lock sees what
// its former holder stored. A read goes to the primary. A primary that was deposed and does not
// know it yet may answer with old data: then a certificate that exists may be obtained once
// more.
//
// A lost reply leaves the outcome of Store and Delete unknown: they may return an error
// although the change took place. Both say what the key should be, not how to change it, so
// CertMagic repeats them. Delete of a directory is not one step: after an error some of its
// keys may be gone.
package certmagiclock

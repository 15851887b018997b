/* Checksums of artifacts: SHA-256 (FIPS 180-4) and the CRC-32 of zip archives. */
#ifndef BYOC_RT_DIGEST_H_
#define BYOC_RT_DIGEST_H_

#include <stddef.h>
#include <stdint.h>

enum { RT_SHA256_NBYTES = 32, RT_SHA256_BLOCK = 64, RT_HEX_NBYTES = 65 };

typedef struct {
  uint32_t state[8];
  uint64_t nbytes;                 /* so far */
  uint8_t block[RT_SHA256_BLOCK]; /* of the last, incomplete block */
} rt_sha256;

void rt_sha256_begin(rt_sha256 *hash);
void rt_sha256_add(rt_sha256 *hash, const void *data, size_t nbytes);
void rt_sha256_end(rt_sha256 *hash, uint8_t digest[RT_SHA256_NBYTES]);

/* Write a digest as 64 lower-case digits, ended by a NUL. */
void rt_to_hex(const uint8_t digest[RT_SHA256_NBYTES], char text[RT_HEX_NBYTES]);

/* Return whether a digest has these 64 digits. */
int rt_is_digest(const uint8_t digest[RT_SHA256_NBYTES], const char *text);

uint32_t rt_crc32(const void *data, size_t nbytes);

#endif /* BYOC_RT_DIGEST_H_ */

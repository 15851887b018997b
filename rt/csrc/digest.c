#include "digest.h"

#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotated(uint32_t word, int count) { return word >> count | word << (32 - count); }

static uint32_t big_endian(const uint8_t *data) {
  return (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
}

static void add_blocks_portably(uint32_t state[8], const uint8_t *data, size_t num_blocks) {
  for (; num_blocks; --num_blocks, data += RT_SHA256_BLOCK) {
    uint32_t words[64], v[8];
    for (int i = 0; i < 16; ++i) words[i] = big_endian(data + 4 * i);
    for (int i = 16; i < 64; ++i) {
      const uint32_t low = words[i - 15], high = words[i - 2];
      words[i] = words[i - 16] + words[i - 7] + (rotated(low, 7) ^ rotated(low, 18) ^ low >> 3) +
                 (rotated(high, 17) ^ rotated(high, 19) ^ high >> 10);
    }
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; ++i) {
      const uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
      const uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
      const uint32_t first =
          v[7] + (rotated(v[4], 6) ^ rotated(v[4], 11) ^ rotated(v[4], 25)) + choice + constants[i] + words[i];
      const uint32_t second = (rotated(v[0], 2) ^ rotated(v[0], 13) ^ rotated(v[0], 22)) + majority;
      memmove(v + 1, v, 7 * sizeof *v);
      v[4] += first;
      v[0] = first + second;
    }
    for (int i = 0; i < 8; ++i) state[i] += v[i];
  }
}

#if defined(__x86_64__)

/* The SHA instructions hold the state as the words (a, b, e, f) and (c, d, g, h), the first word in the highest
 * lane. */
__attribute__((target("sha,sse4.1"))) static void add_blocks_by_instructions(uint32_t state[8], const uint8_t *data,
                                                                             size_t num_blocks) {
  const __m128i swap = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
  __m128i abef = _mm_set_epi32((int)state[0], (int)state[1], (int)state[4], (int)state[5]);
  __m128i cdgh = _mm_set_epi32((int)state[2], (int)state[3], (int)state[6], (int)state[7]);
  for (; num_blocks; --num_blocks, data += RT_SHA256_BLOCK) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i words[4]; /* the last 16 words of the schedule, four in each */
    for (int i = 0; i < 4; ++i) words[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(data + 16 * i)), swap);
    for (int i = 0; i < 16; ++i) {
      const __m128i sum = _mm_add_epi32(words[0], _mm_loadu_si128((const __m128i *)&constants[4 * i]));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
      __m128i next = _mm_add_epi32(_mm_sha256msg1_epu32(words[0], words[1]), _mm_alignr_epi8(words[3], words[2], 4));
      next = _mm_sha256msg2_epu32(next, words[3]);
      words[0] = words[1];
      words[1] = words[2];
      words[2] = words[3];
      words[3] = next;
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  uint32_t lanes[8];
  _mm_storeu_si128((__m128i *)lanes, abef);
  _mm_storeu_si128((__m128i *)(lanes + 4), cdgh);
  static const int lane_of_word[8] = {3, 2, 7, 6, 1, 0, 5, 4};
  for (int i = 0; i < 8; ++i) state[i] = lanes[lane_of_word[i]];
}

/* Return whether the processor has the SHA instructions, and SSE4.1. */
static int has_instructions(void) {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSE4_1) || !(c & bit_SSSE3)) return 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 29));
}

#else

static int has_instructions(void) { return 0; }
#define add_blocks_by_instructions add_blocks_portably

#endif

static pthread_once_t tables_once = PTHREAD_ONCE_INIT;
static void (*add_blocks)(uint32_t state[8], const uint8_t *data, size_t num_blocks);
static uint32_t crc_tables[8][256]; /* the CRC of a byte with 0 ... 7 zero bytes behind */

static void fill_tables(void) {
  add_blocks = has_instructions() ? add_blocks_by_instructions : add_blocks_portably;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    crc_tables[0][byte] = crc;
  }
  for (int zeros = 1; zeros < 8; ++zeros)
    for (int byte = 0; byte < 256; ++byte) {
      const uint32_t shorter = crc_tables[zeros - 1][byte];
      crc_tables[zeros][byte] = shorter >> 8 ^ crc_tables[0][shorter & 0xFF];
    }
}

void rt_sha256_begin(rt_sha256 *hash) {
  static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  (void)pthread_once(&tables_once, fill_tables);
  memset(hash, 0, sizeof *hash);
  memcpy(hash->state, start, sizeof start);
}

void rt_sha256_add(rt_sha256 *hash, const void *data, size_t nbytes) {
  const uint8_t *bytes = data;
  const size_t used = hash->nbytes % RT_SHA256_BLOCK;
  if (!nbytes) return;
  hash->nbytes += nbytes;
  if (used) {
    const size_t room = RT_SHA256_BLOCK - used, count = nbytes < room ? nbytes : room;
    memcpy(hash->block + used, bytes, count);
    if (count < room) return;
    add_blocks(hash->state, hash->block, 1);
    bytes += count;
    nbytes -= count;
  }
  add_blocks(hash->state, bytes, nbytes / RT_SHA256_BLOCK);
  memcpy(hash->block, bytes + nbytes / RT_SHA256_BLOCK * RT_SHA256_BLOCK, nbytes % RT_SHA256_BLOCK);
}

void rt_sha256_end(rt_sha256 *hash, uint8_t digest[RT_SHA256_NBYTES]) {
  static const uint8_t padding[RT_SHA256_BLOCK] = {0x80};
  const uint64_t num_bits = hash->nbytes * 8;
  uint8_t length[8];
  for (int i = 0; i < 8; ++i) length[i] = (uint8_t)(num_bits >> (56 - 8 * i));
  const size_t used = hash->nbytes % RT_SHA256_BLOCK;
  rt_sha256_add(hash, padding, (used < 56 ? 56 : 120) - used);
  rt_sha256_add(hash, length, sizeof length);
  for (int i = 0; i < RT_SHA256_NBYTES; ++i) digest[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}

void rt_to_hex(const uint8_t digest[RT_SHA256_NBYTES], char text[RT_HEX_NBYTES]) {
  static const char digits[] = "0123456789abcdef";
  for (int i = 0; i < RT_SHA256_NBYTES; ++i) {
    text[2 * i] = digits[digest[i] >> 4];
    text[2 * i + 1] = digits[digest[i] & 15];
  }
  text[RT_HEX_NBYTES - 1] = '\0';
}

int rt_is_digest(const uint8_t digest[RT_SHA256_NBYTES], const char *text) {
  char found[RT_HEX_NBYTES];
  rt_to_hex(digest, found);
  return !strncmp(found, text, RT_HEX_NBYTES);
}

uint32_t rt_crc32(const void *data, size_t nbytes) {
  const uint8_t *bytes = data;
  uint32_t crc = 0xFFFFFFFFu;
  (void)pthread_once(&tables_once, fill_tables);
  for (; nbytes >= 8; nbytes -= 8, bytes += 8) {
    crc ^= (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    crc = crc_tables[7][crc & 0xFF] ^ crc_tables[6][crc >> 8 & 0xFF] ^ crc_tables[5][crc >> 16 & 0xFF] ^
          crc_tables[4][crc >> 24] ^ crc_tables[3][bytes[4]] ^ crc_tables[2][bytes[5]] ^ crc_tables[1][bytes[6]] ^
          crc_tables[0][bytes[7]];
  }
  for (; nbytes; --nbytes, ++bytes) crc = crc >> 8 ^ crc_tables[0][(crc ^ *bytes) & 0xFF];
  return ~crc;
}

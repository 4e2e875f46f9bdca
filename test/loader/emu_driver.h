/* What the driver of emu_driver.cpp offers besides the driver API. */
#ifndef TKC_TEST_EMU_DRIVER_H
#define TKC_TEST_EMU_DRIVER_H
#ifdef __cplusplus
extern "C" {
#endif
/* The calls since the start or the last clearing, one a line:
 *   load TARGET | attribute NAME 8=VALUE | alloc BYTES | free | map RANK ... | record STREAM | wait STREAM
 *   launch NAME grid X block X shared BYTES stream N : BYTES OF EVERY PARAMETER IN HEX */
const char *tkc_emu_log(void);
void tkc_emu_clear_log(void);
/* From here on launches are recorded, and what a stream capture forbids fails, until the end. */
void tkc_emu_begin_capture(void);
void tkc_emu_end_capture(void);
void tkc_emu_resume_capture(void); /* keeps what was recorded */
/* Runs what was recorded; the driver's result. */
int tkc_emu_replay(void);
/* The next call of this function fails with the code. */
void tkc_emu_fail(const char *function, int code);
#ifdef __cplusplus
}
#endif
#endif

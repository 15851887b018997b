/* The number of the process, to find out after a fork which process holds something. */
#ifndef BYOC_RT_PROCESS_H_
#define BYOC_RT_PROCESS_H_

/* Return a positive number, another one in each child of a fork than in its ancestors. */
int rt_process(void);

#endif /* BYOC_RT_PROCESS_H_ */

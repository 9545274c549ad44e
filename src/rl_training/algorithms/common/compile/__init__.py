"""Compiled gradient steps: one call of a step becomes one C++ function.

An ordinary gradient step of a small network is a hundred calls from Python, each with a few microseconds of arithmetic.
As one C++ function it takes about a third of the time. Three stages lead there:

    step(batch, ...)                what a learner has: a method that reads and changes tensors it does not get as
        |                           arguments (weights, moments, targets, statistics)
        |  watch one call
        v
    tensors found                   every tensor that the call used, was not given, and did not make itself
        |  group by memory
        v
    vectors                         one vector for all tensors that share a memory block: the weights of a network are
        |                           views of the vector that its optimizer changes
        |  call the step again, with the vectors as inputs
        v
    graph(*vectors, *inputs)        the same operations on plain tensors; nothing of Python is left
        |  TorchInductor
        v
    C++                             loss, backward pass, clipping and optimizer in one function

`trace.py` makes the graph, with an example that you can run. `products.py` replaces its wide matrix products if the
learner asks for it, and turns its thin ones. `compiled_step.py` compiles it, and decides which calls use the compiled
function. `compiled_loop.py` puts a loop around the graph: all steps of an update, or of a rollout, are then one call.
"""

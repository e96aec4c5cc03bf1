//! An echo server and its clients in one process, on two worker threads.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::main(worker_threads = 2)]
async fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                    buffer[..n].iter_mut().for_each(|b| *b = b.wrapping_mul(3));
                    if stream.write_all(&buffer[..n]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let clients = (0..8_u8).map(|id| {
        tokio::spawn(async move {
            let mut stream = TcpStream::connect(address).await?;
            let (mut sum, mut buffer) = (0_u64, [0; 1024]);
            for round in 0..500_u32 {
                stream.write_all(&[id.wrapping_add(round as u8); 1024]).await?;
                stream.read_exact(&mut buffer).await?;
                sum += buffer.iter().map(|b| u64::from(*b)).sum::<u64>();
            }
            Ok::<_, std::io::Error>(sum)
        })
    });
    let mut total = 0;
    for client in clients.collect::<Vec<_>>() {
        total += client.await.map_err(std::io::Error::other)??;
    }
    println!("{total}");
    Ok(())
}
